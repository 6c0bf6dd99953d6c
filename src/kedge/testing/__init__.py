"""What tests of programs that use kedge may import; the program itself must not."""
