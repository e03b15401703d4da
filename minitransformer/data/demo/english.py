"""The English wording of a meaning.

A comma parts coordinated clauses: in "I see Anna and the men run" Anna could be running too.
"""

from minitransformer.data.demo.lexicon import (
    Agreement,
    FiniteForms,
    Modal,
    Number,
    Tense,
    Verb,
)
from minitransformer.data.demo.meaning import (
    Clause,
    Comparison,
    Conjunct,
    ContentQuestion,
    Coordination,
    Expression,
    NounPhrase,
    Phrase,
    PolarQuestion,
    PrepositionalPhrase,
    Pronoun,
    RelativePronoun,
    Role,
    Sentence,
    Statement,
    Subordination,
)
from minitransformer.data.demo.verbs import BE, HAVE

_DO = {
    Tense.PRESENT: FiniteForms("do", "does", "do"),
    Tense.PAST: FiniteForms("did", "did", "did"),
}


def english_sentence(sentence: Sentence) -> str:
    """The sentence in English, in lower case and without a full stop."""
    match sentence:
        case Statement(clause, front):
            return _statement(clause, front)
        case PolarQuestion(clause):
            return _inverted(clause, None) + "?"
        case ContentQuestion(clause, Role.SUBJECT):
            return _statement(clause, Role.SUBJECT) + "?"
        case ContentQuestion(clause, front):
            return f"{_constituent(clause, front)} {_inverted(clause, front)}?"
        case Coordination(first, conjunction, second):
            return f"{english_sentence(first)}, {conjunction.english} {english_sentence(second)}"
        case Subordination(main, conjunction, subordinate, subordinate_first):
            dependent = f"{conjunction.english} {_statement(subordinate, Role.SUBJECT)}"
            independent = _statement(main, Role.SUBJECT)
            return f"{dependent}, {independent}" if subordinate_first else f"{independent} {dependent}"


def english_phrase(phrase: Phrase, is_subject: bool = False) -> str:
    """A phrase in English; only pronouns distinguish the subject from other roles."""
    match phrase:
        case Expression():
            return phrase.english
        case Pronoun() | RelativePronoun():
            return _pronoun(phrase, is_subject)
        case NounPhrase():
            return _noun_phrase(phrase)
        case PrepositionalPhrase(preposition, complement):
            return f"{preposition.english} {english_phrase(complement)}"
        case Conjunct(first, second):
            return f"{english_phrase(first)} and {english_phrase(second)}"
        case Comparison(adjective, standard):
            return f"{adjective.english_comparative} than {english_phrase(standard)}"


def _pronoun(pronoun: Pronoun | RelativePronoun, is_subject: bool) -> str:
    if isinstance(pronoun, Pronoun):
        return pronoun.english if is_subject else pronoun.english_object
    if not pronoun.human:
        return "that"
    return "who" if is_subject else "whom"


def _noun_phrase(phrase: NounPhrase) -> str:
    plural = phrase.number is Number.PLURAL
    determiner = phrase.determiner.english_plural if plural else phrase.determiner.english
    noun = phrase.noun.english_plural if plural else phrase.noun.english
    words = [*(adjective.english for adjective in phrase.adjectives), noun]
    if determiner:
        words.insert(0, "an" if determiner == "a" and words[0][0] in "aeiou" else determiner)
    if phrase.possessor is not None:
        words += ["of", _noun_phrase(phrase.possessor)]
    if phrase.relative is not None:
        words.append(_statement(phrase.relative.clause, phrase.relative.front))
    return " ".join(words)


def _statement(clause: Clause, front: Role) -> str:
    """The constituent in front, subject, verb, objects: the order of statements and of relative clauses."""
    fronted = "" if front is Role.SUBJECT else _constituent(clause, front)
    auxiliary, main = _verb_group(clause, supported=clause.negated)
    subject = _constituent(clause, Role.SUBJECT)
    return _join(fronted, subject, auxiliary, *_predicate(clause, main, front))


def _inverted(clause: Clause, front: Role | None) -> str:
    """The order of questions: auxiliary, subject, the rest of the verb."""
    auxiliary, main = _verb_group(clause, supported=True)
    return _join(auxiliary, _constituent(clause, Role.SUBJECT), *_predicate(clause, main, front))


def _predicate(clause: Clause, main: str, front: Role | None) -> list[str]:
    """All that follows the auxiliary and the subject: negation, adverb, main verb and the constituents not in front."""
    negation = "not" if clause.negated else ""
    adverb = clause.frequency.english if clause.frequency else ""
    after = [role for role in (Role.COMPLEMENT, Role.CIRCUMSTANCE) if role is not front]
    return [negation, adverb, main, *_objects(clause, front), *(_constituent(clause, role) for role in after)]


def _objects(clause: Clause, front: Role | None) -> list[str]:
    """The objects and the verb's particle, which stands before an object unless that is a pronoun."""
    recipient = "" if front is Role.RECIPIENT else _constituent(clause, Role.RECIPIENT)
    direct = "" if front is Role.OBJECT else _constituent(clause, Role.OBJECT)
    particle = clause.verb.english_particle
    return [recipient, direct, particle] if isinstance(clause.object, Pronoun) else [recipient, particle, direct]


def _constituent(clause: Clause, role: Role) -> str:
    phrase = clause.constituent(role)
    return english_phrase(phrase, role is Role.SUBJECT) if phrase is not None else ""


def _verb_group(clause: Clause, supported: bool) -> tuple[str, str]:
    """The auxiliary, if any, and the rest of the verb; a supported verb without an auxiliary takes a form of "do"."""
    verb, agreement = clause.verb, clause.agreement
    if clause.modal is not None:
        return _modal_group(clause.modal, verb, agreement, supported)
    if clause.tense is Tense.PERFECT:
        return _finite(HAVE, Tense.PRESENT, agreement), verb.english_participle
    if verb is BE:
        return _finite(BE, clause.tense, agreement), ""
    if supported:
        return _DO[clause.tense].agreeing(agreement), verb.english_base
    return "", _finite(verb, clause.tense, agreement)


def _modal_group(modal: Modal, verb: Verb, agreement: Agreement, supported: bool) -> tuple[str, str]:
    """A modal auxiliary with the bare infinitive, or "want", a full verb, with "to"."""
    if modal.is_auxiliary:
        return modal.english.agreeing(agreement), verb.english_base
    if supported:
        return _DO[Tense.PRESENT].agreeing(agreement), f"{modal.english.plural} to {verb.english_base}"
    return "", f"{modal.english.agreeing(agreement)} to {verb.english_base}"


def _finite(verb: Verb, tense: Tense, agreement: Agreement) -> str:
    """A finite form of a verb: only the third person singular of the present is marked."""
    past = tense is Tense.PAST
    if verb.irregular is not None:
        forms = verb.irregular.english_past if past else verb.irregular.english_present
        return forms.agreeing(agreement)
    if past:
        return verb.english_past
    return verb.english_third_singular if agreement is Agreement.THIRD_SINGULAR else verb.english_base


def _join(*words: str) -> str:
    return " ".join(word for word in words if word)
