"""`python -m eftgan`, and so `accelerate launch -m eftgan train gan`."""

from eftgan.commands import main

if __name__ == "__main__":
    main()
