"""Messages of errors."""

from hyperproto import ConfigError, DataError


def test_a_message_that_quotes_a_long_value_keeps_its_beginning_and_its_end() -> None:
    text = str(DataError(f"file.csv, line 1: {'x' * 100_000} is no number; write one"))
    assert len(text) < 4100
    assert text.startswith("file.csv, line 1: xxx")
    assert text.endswith("xxx is no number; write one")
    assert " ... " in text


def test_other_messages_are_as_they_were_given() -> None:
    assert str(ConfigError("a" * 4000)) == "a" * 4000
