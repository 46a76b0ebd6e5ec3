"""Out-of-memory errors: parse their messages, and find changes that would have made the request fit."""
