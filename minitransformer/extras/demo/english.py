"""English wording: subject, verb, objects; "do" in questions and negations.

A comma separates coordinated clauses: without it, "I see Anna and the men run" could mean that Anna runs, too.
"""

from minitransformer.extras.demo.meaning import (
    ROLES,
    Clause,
    Compound,
    Governed,
    NounPhrase,
    Pair,
    Phrase,
    Sentence,
    Speech,
)
from minitransformer.extras.demo.words import BE, THIRD, Pronoun, Text, join

_BE = {"present": ("am", "is", "are", "are"), "past": ("was", "was", "were", "were")}
_DO = {"present": ("do", "does", "do", "do"), "past": ("did", "did", "did", "did")}


def english_sentence(sentence: Sentence) -> str:
    """Return the sentence in English, without a capital and a full stop."""
    match sentence:
        case Text():
            return sentence.english
        case Clause():
            return _clause(sentence)
        case Compound(main, conjunction, second, second_first):
            first, joined = _clause(main), f"{conjunction.english} {_clause(second)}"
            comma = "," if conjunction.english in ("and", "but") else ""
            return f"{joined}, {first}" if second_first else f"{first}{comma} {joined}"
        case Speech(act, speech, speech_first, inverted):
            says = f"{_verbs(act, False)[1]} {english_phrase(act.subject, True)}" if inverted else _clause(act)
            return f'"{_clause(speech)}," {says}' if speech_first else f'{says}: "{_clause(speech)}"'


def english_phrase(phrase: Phrase | None, is_subject: bool = False) -> str:
    """Return a phrase in English; only pronouns depend on ``is_subject`` (I, me)."""
    match phrase:
        case None:
            return ""
        case Text():
            return phrase.english
        case Pronoun():
            return phrase.english if is_subject else phrase.english_object
        case NounPhrase():
            return _noun_phrase(phrase)
        case Pair(first, second, conjunction):
            return f"{english_phrase(first)} {conjunction.english} {english_phrase(second)}"
        case Governed(preposition, _, governed):
            return f"{preposition.english} {english_phrase(governed)}"


def _noun_phrase(phrase: NounPhrase) -> str:
    determiner, noun = phrase.determiner, phrase.noun
    article, head = determiner.english, noun.english
    if phrase.plural:
        article, head = determiner.english_plural, noun.english_plural
    words = [*(adjective.english for adjective in phrase.adjectives), head]
    article = "an" if article == "a" and words[0][0] in "aeiou" else article
    owner = f"of {_noun_phrase(phrase.possessor)}" if phrase.possessor else ""
    return join(article, *words, owner, _clause(phrase.relative) if phrase.relative else "")


def _clause(clause: Clause) -> str:
    inverted = clause.question and clause.front != "subject"
    auxiliary, main = _verbs(clause, needs_auxiliary=inverted or clause.negated)
    phrases = {role: english_phrase(clause.phrase(role), is_subject=role == "subject") for role in ROLES}
    front = phrases.pop(clause.front) if clause.front not in (None, "subject") else ""
    subject, recipient = phrases.pop("subject"), phrases.pop("recipient", "")
    objects = [clause.verb.particle, phrases.pop("object", "")]
    if isinstance(clause.object, Pronoun):
        objects.reverse()  # picks up the dog, picks it up
    opening = [auxiliary, subject] if inverted else [subject, auxiliary]
    adverbs = ["not" if clause.negated else "", english_phrase(clause.frequency)]
    text = join(front, *opening, *adverbs, main, recipient, *objects, *phrases.values())
    return text.replace("can not", "cannot") + "?" * clause.question


def _verbs(clause: Clause, needs_auxiliary: bool) -> tuple[str, str]:
    """Return the auxiliary and the main verb, which may each be ""; "is" and "was" count as auxiliaries.

    If the clause needs an auxiliary and has none, add "do".
    """
    person, past = clause.subject.person, clause.tense == "past"
    base, third, past_form, participle = clause.verb.en.split(", ")
    if clause.modal is not None:
        if clause.modal.english != "want":
            return clause.modal.english, base
        base, third = f"want to {base}", f"wants to {base}"
    elif clause.tense == "perfect":
        return "has" if person == THIRD else "have", participle
    elif clause.verb is BE:
        return _BE[clause.tense][person], ""
    if needs_auxiliary:
        return _DO[clause.tense][person], base
    return "", past_form if past else third if person == THIRD else base
