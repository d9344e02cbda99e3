import pytest

from hyperproto.methods import Task
from tests.helpers.random_tasks import make_task


@pytest.fixture
def task() -> Task:
    return make_task()
