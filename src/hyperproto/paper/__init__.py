"""The paper's tables and figures, grids of trainings, and the demo."""
