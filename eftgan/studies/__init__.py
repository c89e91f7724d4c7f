"""Many runs that answer one question: comparisons of methods, searches for settings, and who trains which run."""
