"""A few cells of the matrix (tests/sim/matrix) for a real kernel: each pair of values that occurs in a served cell occurs in one of these, and each reason
to refuse a stage has one cell. `python3 pairwise.py < CELLS` prints them, as `matrix --cells` prints all."""
import itertools
import json
import sys

DIMENSIONS = ("mounter", "encryption", "use", "access", "features", "origin")


def pairs(cell):
    return {(one, cell[one], other, cell[other]) for one, other in itertools.combinations(DIMENSIONS, 2)}


def cover(cells):
    """Takes the cell with the most missing pairs, the first of equal ones, until no pair is missing."""
    of = [pairs(cell) for cell in cells]
    missing, chosen = set().union(*of), []
    while missing:
        best = max(range(len(cells)), key=lambda at: len(of[at] & missing))
        missing -= of[best]
        chosen.append(cells[best])
    return chosen


def refusals(cells):
    first = {}
    for cell in cells:
        first.setdefault(cell["stage"], cell)
    return list(first.values())


def lab_cells(cells):
    return cover([cell for cell in cells if cell["stage"] is None]) + refusals([cell for cell in cells if cell["stage"] is not None])


if __name__ == "__main__":
    for made in lab_cells([json.loads(line) for line in sys.stdin]):
        print(json.dumps(made))
