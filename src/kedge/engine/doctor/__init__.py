"""The doctor finds what is wrong with the data of kedge and the machine, and repairs some of it."""
