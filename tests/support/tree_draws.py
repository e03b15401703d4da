"""Trees for Hypothesis: of any shape, with functional tags, traces and odd words."""

from hypothesis import strategies as st

from minitransformer.extras.parsing.tree import Closing, Leaf, Opening, Step, Tree

LABELS = ["S", "NP", "VP", "PP", "ADVP", "PRT", "NML", "WHNP"]
TAGS = ["NN", "VBZ", "PRP$", "CC", ",", ".", ":", "``", "''", "-LRB-", "-RRB-", "$", "#"]
WORDS = ["dog", "the", "1,000", "naïve", "a=b", "NP-SBJ", "XX", "%", "\u00a0x", "'s", "*"]

Node = Leaf | tuple[str, list["Node"]]

leaves = st.builds(Leaf, st.sampled_from(TAGS), st.sampled_from(WORDS))


def _walk(node: Node) -> list[Step]:
    if isinstance(node, Leaf):
        return [node]
    label, children = node
    return [Opening(label), *(step for child in children for step in _walk(child)), Closing(label)]


def trees_over(leaf: st.SearchStrategy[Leaf], labels: list[str]) -> st.SearchStrategy[Tree]:
    """Trees of these leaves under these labels; now and then a leaf alone."""
    nodes = st.recursive(
        leaf, lambda child: st.tuples(st.sampled_from(labels), st.lists(child, min_size=1, max_size=4)), max_leaves=12
    )
    return nodes.map(lambda node: Tree(tuple(_walk(node))))


trees = trees_over(leaves, LABELS)
trees_of_treebanks = trees_over(
    leaves | st.builds(Leaf, st.just("-NONE-"), st.sampled_from(["*", "*T*-1", "0"])),
    [f"{label}{tag}" for label in LABELS for tag in ("", "-SBJ", "-SBJ-1", "=2", "-TMP=3")],
)
