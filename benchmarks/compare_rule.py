"""How often the rule of hangdrill/certify/compare_samples.py errs: the table in docs/different.md.

Simulated machines, no job: lognormal noise with heavy tails (one run in twenty is 1.5 to 4 times slower) and a drift
that both stacks share. Printed for each noise and number of pairs, each of --times certifications: equal stacks that
are called worse, equal stacks that are shown to be not worse, and stacks that are 20 % slower and are found.

    python benchmarks/compare_rule.py [--times 1000]
"""

import argparse
import random
from collections import Counter

from hangdrill.certify.compare_samples import Limit, Outcome, Rule, compare

NOISES = (0.02, 0.05, 0.10, 0.20, 1.0)
PAIRS = (8, 12, 16, 20, 24, 36, 60)


def machine(dice: random.Random, pairs: int, noise: float, slower: float) -> tuple[list[float], list[float]]:
    """Samples of both stacks as such a machine gives them, in changing order."""
    level, samples = 1.0, ([], [])
    for pair in range(pairs):
        for stack in (0, 1) if pair % 2 == 0 else (1, 0):
            level *= 1 + 0.01 * dice.gauss(0, 1) + 0.002
            tail = dice.uniform(1.5, 4) if dice.random() < 0.05 else 1.0
            samples[stack].append(level * tail * dice.lognormvariate(0, noise) * (slower if stack else 1))
    return samples


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=1000)
    parser.add_argument("--pairs", type=int, nargs="+", default=PAIRS)
    given = parser.parse_args()
    dice, limit, rule = random.Random(1), Limit(), Rule()
    print("noise  pairs  equal: called worse  equal: shown not worse  20 % slower: found")
    for noise in NOISES:
        for pairs in given.pairs:
            said = {
                slower: Counter(
                    compare(*machine(dice, pairs, noise, slower), limit=limit, rule=rule).outcome
                    for _ in range(given.times)
                )
                for slower in (1.0, 1.2)
            }
            parts = [said[1.0][Outcome.WORSE], said[1.0][Outcome.NOT_WORSE], said[1.2][Outcome.WORSE]]
            print(f"{noise:5.2f}  {pairs:5d}", *(f"{100 * part / given.times:18.1f} %" for part in parts))


if __name__ == "__main__":
    main()
