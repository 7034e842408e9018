"""What prompts have in common, as a tree: by named groups, or by chains of block hashes."""

from __future__ import annotations

import numpy as np

from gnomon.spec.workload import Ints, Prefixes


def by_groups(group: Ints, tokens: Ints) -> Prefixes | None:
    """Requests of a group (-1: of none) share their first tokens, each so many: two of them as many as the shorter.

    A node for every length that a group has, but for a last one that nobody shares.
    """
    rows = np.flatnonzero((group >= 0) & (tokens > 0))
    if not rows.size:
        return None
    scale = int(tokens.max()) + 1
    keys, inverse, counts = np.unique(group[rows] * scale + tokens[rows], return_inverse=True, return_counts=True)
    owner = keys // scale
    same = np.concatenate([[False], owner[1:] == owner[:-1]])
    last = np.concatenate([owner[1:] != owner[:-1], [True]])
    kept = ~(last & (counts == 1))
    if not kept.any():
        return None
    number = np.cumsum(kept) - 1
    above = np.where(same, np.concatenate([[-1], number[:-1]]), -1)
    node = np.full(group.size, -1, np.int64)
    node[rows] = np.where(kept, number, above)[inverse]
    return Prefixes(node, above[kept], (keys % scale)[kept])


def by_chains(chains: Ints, sizes: Ints, prompt_tokens: Ints, block: int) -> Prefixes | None:
    """Requests whose prompts are chains of hashed blocks of so many tokens; `chains` has them one after the other and
    `sizes` how many of them each request has. A node is a run of blocks that the same requests share."""
    names, ids = np.unique(chains, return_inverse=True)
    first = np.cumsum(sizes) - sizes
    node = np.full(sizes.size, -1, np.int64)
    parents, ends, counts = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    active, depth, total = np.flatnonzero(sizes > 0), 0, 0
    while active.size:
        keys = (node[active] + 1) * names.size + ids[first[active] + depth]
        found, inverse, count = np.unique(keys, return_inverse=True, return_counts=True)
        shared = count > 1
        end = np.full(found.size, block * (depth + 1), np.int64)
        np.minimum.at(end, inverse, prompt_tokens[active])
        number = total + np.cumsum(shared) - 1
        going = shared[inverse]
        parents.append((found // names.size - 1)[shared])
        ends.append(end[shared])
        counts.append(count[shared])
        active, inverse = active[going], inverse[going]
        node[active] = number[inverse]
        total, depth = total + int(shared.sum()), depth + 1
        active = active[sizes[active] > depth]
    if not total:
        return None
    return _joined(node, parents, np.concatenate(ends), np.concatenate(counts))


def _joined(node: Ints, levels: list[Ints], end: Ints, count: Ints) -> Prefixes:
    """Without nodes that go on as one other: all requests of theirs are that one's too."""
    parent = np.concatenate(levels)
    kept = np.ones(parent.size, bool)
    inner = np.flatnonzero(parent >= 0)
    kept[parent[inner[count[inner] == count[parent[inner]]]]] = False
    above = parent.copy()
    start = 0
    for level in levels:  # a level's parents are all of those before it, which are right already
        part = slice(start, start + level.size)
        gone = above[part] >= 0
        gone[gone] = ~kept[above[part][gone]]
        above[part] = np.where(gone, above[above[part]], above[part])
        start += level.size
    number = np.cumsum(kept) - 1
    parents = above[kept]
    return Prefixes(
        np.where(node < 0, -1, number[node]), np.where(parents < 0, -1, number[parents]), end[kept]
    )  # fmt: skip
