"""`python -m tests.undo_fuzz --rounds 1000 --seed 0 --level planner`"""

from tests.undo_fuzz.campaign import main

if __name__ == "__main__":
    main()
