"""Other packages for few-shot text classification beside ours, on the same texts, vectors and supports."""
