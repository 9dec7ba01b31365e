"""Development commands of this repository: environment, generated code, checks, lock files."""
