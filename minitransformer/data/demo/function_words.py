"""The closed classes of words: determiners, names, prepositions, modal verbs."""

from minitransformer.data.demo.lexicon import (
    Case,
    Determiner,
    FiniteForms,
    Modal,
    Paradigm,
    Preposition,
)

DATIVE, ACCUSATIVE = Case.DATIVE, Case.ACCUSATIVE

NO_DETERMINER = Determiner("", "", "", Paradigm.UNINFLECTED)
PROPER_NAME = Determiner("", "", "", Paradigm.UNINFLECTED, definite=True)
THE = Determiner("the", "the", "d", Paradigm.DEFINITE_ARTICLE, definite=True)
A = Determiner("a", "", "ein", Paradigm.EIN_WORD)
NO = Determiner("no", "no", "kein", Paradigm.EIN_WORD)
THIS = Determiner("this", "these", "dies", Paradigm.DER_WORD, definite=True)
EVERY = Determiner("every", "", "jed", Paradigm.DER_WORD, definite=True)
WHICH = Determiner("which", "which", "welch", Paradigm.DER_WORD)
HOW_MANY = Determiner("", "how many", "wie viel", Paradigm.QUANTIFIER)
MANY = Determiner("", "many", "viel", Paradigm.QUANTIFIER)
SOME = Determiner("", "some", "einig", Paradigm.QUANTIFIER)
ALL = Determiner("", "all", "all", Paradigm.DER_WORD, definite=True)
BOTH = Determiner("", "both", "beid", Paradigm.DER_WORD, definite=True)

FEMALE_NAMES = ("Anna", "Maria", "Lena", "Clara")
MALE_NAMES = ("Peter", "Paul", "Martin", "Emil")
NAMES = (*FEMALE_NAMES, *MALE_NAMES)

POSSESSIVE_PRONOUNS = tuple(
    Determiner(english, english, german, Paradigm.EIN_WORD, definite=True)
    for english, german in (("my", "mein"), ("his", "sein"), ("her", "ihr"), ("our", "unser"), ("their", "ihr"))
)
POSSESSIVE_NAMES = tuple(
    Determiner(f"{name}'s", f"{name}'s", f"{name}s", Paradigm.UNINFLECTED, definite=True) for name in NAMES
)

IN = Preposition("in", "in", DATIVE)
ON = Preposition("on", "auf", DATIVE)
UNDER = Preposition("under", "unter", DATIVE)
BEHIND = Preposition("behind", "hinter", DATIVE)
IN_FRONT_OF = Preposition("in front of", "vor", DATIVE)
NEXT_TO = Preposition("next to", "neben", DATIVE)
INTO = Preposition("into", "in", ACCUSATIVE)
ONTO = Preposition("onto", "auf", ACCUSATIVE)
THROUGH = Preposition("through", "durch", ACCUSATIVE)
TO = Preposition("to", "zu", DATIVE)
TO_CITY = Preposition("to", "nach", DATIVE)
OUT_OF = Preposition("out of", "aus", DATIVE)
FROM = Preposition("from", "von", DATIVE)
FROM_CITY = Preposition("from", "aus", DATIVE)
WITH = Preposition("with", "mit", DATIVE)
WITHOUT = Preposition("without", "ohne", ACCUSATIVE)
FOR = Preposition("for", "für", ACCUSATIVE)

WILL = Modal(FiniteForms("will", "will", "will"), FiniteForms("werde", "wird", "werden"))
CAN = Modal(FiniteForms("can", "can", "can"), FiniteForms("kann", "kann", "können"))
SHOULD = Modal(FiniteForms("should", "should", "should"), FiniteForms("sollte", "sollte", "sollten"))
MUST = Modal(FiniteForms("must", "must", "must"), FiniteForms("muss", "muss", "müssen"))
WANT = Modal(FiniteForms("want", "wants", "want"), FiniteForms("will", "will", "wollen"), is_auxiliary=False)

NEGATABLE_MODALS = (WILL, CAN, SHOULD, WANT)
"""Without "must not", whose German is not "muss nicht"."""
MODALS = (*NEGATABLE_MODALS, MUST)
