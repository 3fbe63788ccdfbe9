"""Scripts that ask transformers for the answers that the tests compare with; the suite itself does not run them."""
