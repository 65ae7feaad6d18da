"""Quality and speed of docmill and its peers on documents whose truth is known."""
