"""German wording: the finite verb is in second, first or last position, the rest of the verb at the end.

The German present translates the English present.  The Perfekt translates both English past tenses, except that "was"
becomes "war".  Prepositions are contracted with the article (im, zur).  "He" is always "er" and "she" always "sie",
because they stand for people.  The subject precedes object pronouns, so that a pronoun is not read as the subject (weil
die Frau sie sieht).  Coordinated clauses have no comma before "und".
"""

from dataclasses import replace
from operator import itemgetter

from minitransformer.extras.demo.meaning import (
    ROLES,
    Clause,
    Compound,
    Governed,
    NounPhrase,
    Pair,
    Phrase,
    Role,
    Sentence,
    Speech,
)
from minitransformer.extras.demo.words import BE, HAVE, Determiner, Noun, Pronoun, Text, Verb, join

CASES = ("nominative", "accusative", "dative", "genitive")
_COLUMNS = ("der", "die", "das", "plural")
_CONTRACTIONS = {"in dem": "im", "in das": "ins", "von dem": "vom", "zu dem": "zum", "zu der": "zur"}
_SEIN = {"present": ("bin", "ist", "sind", "bist"), "past": ("war", "war", "waren", "warst")}

# Endings of determiners and of the adjectives after them: a row for each case, a column for each gender and the plural.
_DIESER = "er e es e", "en e es e", "em er em en", "es er es er"
_WEAK = "e e e en", "en e e en", "en en en en", "en en en en"
_STRONG = "er e es e", "en e es e", "em er em en", "en er en er"
_ENDINGS = {
    "article": (("er ie as ie", "en ie as ie", "em er em en", "es er es er"), _WEAK),
    "dieser": (_DIESER, _WEAK),
    "ein": (("- e - e", "en e - e", *_DIESER[2:]), ("er e es en", "en e es en", *_WEAK[2:])),
    "viele": (_DIESER, _STRONG),
    "none": (("- - - -",) * 4, _STRONG),
}


def german_sentence(sentence: Sentence) -> str:
    """Return the sentence in German, without a capital and a full stop."""
    match sentence:
        case Text():
            text = sentence.german
        case Clause():
            text = _clause(sentence)
        case Compound(main, conjunction, second, second_first):
            word, is_coordinate = conjunction.german, conjunction.german in ("und", "aber")
            joined = f"{word} {_clause(second, verb_last=not is_coordinate)}"
            comma = "" if word == "und" else ","
            text = f"{_clause(main)}{comma} {joined}"
            if second_first:
                text = f"{joined}, {_clause(replace(main, front=None))}"
        case Speech(act, speech, speech_first):
            quoted = f"„{_clause(speech)}“".replace(",“", "“").replace(",?“", "?“")
            text = f"{quoted}, {_clause(replace(act, front=None))}" if speech_first else f"{_clause(act)}: {quoted}"
    # The comma that closes a relative clause is dropped before other punctuation and at the end of the sentence.
    return text.replace(",,", ",").replace(",?", "?").removesuffix(",")


def german_phrase(phrase: Phrase | None, case: str = "nominative") -> str:
    """Return a phrase in German; a phrase with a relative clause ends in a comma."""
    match phrase:
        case None:
            return ""
        case Text():
            return phrase.german
        case Pronoun():
            return str(getattr(phrase, case))
        case NounPhrase():
            return _noun_phrase(phrase, case)
        case Pair(first, second, conjunction):
            return f"{german_phrase(first, case)} {conjunction.german} {german_phrase(second, case)}"
        case Governed(preposition, governed_case, governed):
            word, *rest = german_phrase(governed, governed_case).split(" ")
            opening = f"{preposition.german} {word}"
            return " ".join([_CONTRACTIONS.get(opening, opening), *rest])


def _noun_phrase(phrase: NounPhrase, case: str) -> str:
    """Inflect determiner, adjectives and noun; the possessor follows in the genitive."""
    determiner = phrase.determiner
    ending, adjective_ending = _endings(phrase, determiner.endings, case)
    adjectives = [adjective.stem + adjective_ending for adjective in phrase.adjectives]
    owner = german_phrase(phrase.possessor, "genitive")
    text = join(determiner.german + ending, *adjectives, _noun(phrase.noun, case, phrase.plural), owner)
    return f"{text}, {_clause(phrase.relative, verb_last=True)}," if phrase.relative else text


def _endings(phrase: NounPhrase, paradigm: str, case: str) -> tuple[str, str]:
    """Return the endings of a phrase's determiner and of its adjectives."""
    column = _COLUMNS.index("plural" if phrase.plural else phrase.noun.article)
    determiner, adjective = (rows[CASES.index(case)].split(" ")[column] for rows in _ENDINGS[paradigm])
    return determiner.removeprefix("-"), adjective


def _noun(noun: Noun, case: str, plural: bool) -> str:
    """Inflect a noun.

    A plural gets -n in the dative.  A weak masculine noun has its genitive form in all cases but the nominative.
    """
    if plural:
        return noun.german_plural + ("n" if case == "dative" and noun.german_plural[-1] not in "ns" else "")
    is_weak = noun.article == "der" and noun.genitive.endswith("n")
    return noun.genitive if case == "genitive" or (is_weak and case != "nominative") else noun.german


def _clause(clause: Clause, verb_last: bool = False) -> str:
    """Join the first constituent, the finite verb, the other constituents, and the rest of the verb.

    If the finite verb comes last, it is joined with its separable prefix.
    """
    finite, rest = _verbs(clause)
    front = _phrase(clause, clause.front) if clause.front else ""
    if not verb_last:
        return join(front, finite, *_middle(clause), rest) + "?" * clause.question
    return join(front, *_middle(clause), rest + finite if rest == clause.verb.prefix else f"{rest} {finite}")


def _verbs(clause: Clause) -> tuple[str, str]:
    """Return the finite verb, and the rest of the verb: prefix, participle or infinitive."""
    verb, person = clause.verb, clause.subject.person
    infinitive, _, participle = verb.de.split(", ")
    if clause.modal is not None:
        return clause.modal.german[person], verb.prefix + infinitive
    if clause.tense == "present":
        return _present(verb, person), verb.prefix
    if clause.tense == "past" and verb is BE:
        return _SEIN["past"][person], ""
    return _present(BE if verb.sein else HAVE, person), participle


def _present(verb: Verb, person: int) -> str:
    """Inflect a verb in the present tense.

    The first person is the infinitive without -n.  If the third person does not end in -t (weiß), the first person
    equals the third.  The second person ends in -st (siehst); after s, ß and z it ends in -t (liest).
    """
    if verb is BE:
        return _SEIN["present"][person]
    infinitive, third, _ = verb.de.split(", ")
    first = infinitive.removesuffix("n") if third.endswith("t") else third
    stem = third.removesuffix("t")
    second = stem + ("t" if stem[-1] in "sßz" else "st")
    return (first, third, infinitive, second)[person]


def _middle(clause: Clause) -> list[str]:
    """Return the constituents except ``clause.front``, and the adverb with "nicht", in the order of ``_rank``."""
    adverbs = join(german_phrase(clause.frequency), "nicht" if clause.negated else "")
    roles = [role for role in ROLES if role != clause.front]
    ranked = [(_rank(role, clause.phrase(role)), _phrase(clause, role)) for role in roles]
    return [text for _, text in sorted([*ranked, (4, adverbs)], key=itemgetter(0))]


def _rank(role: Role, phrase: Phrase | None) -> int:
    """Return the rank of a constituent in the order of a clause; the adverb and "nicht" have rank 4.

    The order is: subject, pronouns as objects, time (kauft heute das Auto), other known objects (das Auto), adverb and
    "nicht", new objects (ein Auto), all other constituents.
    """
    match role, phrase:
        case "subject", _:
            return 0
        case (("recipient" | "object"), Pronoun()):
            return 1
        case "circumstance", _:
            return 2
        case (("recipient" | "object"), Text() | Pair() | NounPhrase(determiner=Determiner(known=True))):
            return 3
        case (("recipient" | "object"), _):
            return 5
        case _:
            return 6


def _phrase(clause: Clause, role: Role) -> str:
    """Write a constituent: a recipient is dative; an object is accusative, or dative if the verb requires it."""
    cases = {"recipient": "dative", "object": "dative" if clause.verb.dative else "accusative"}
    return german_phrase(clause.phrase(role), cases.get(role, "nominative"))
