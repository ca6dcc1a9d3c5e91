//! Words as the offline model compares them: lower case, without stop words, cut to a stem.
//!
//! The stemmer is light and for English: it only has to bring forms of one word together
//! ("regulatory", "regulation", "regulator"), not to give real words.

/// A word of a text: how it was written, and what it is compared by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Term {
    pub word: String,
    /// Words hung together by a hyphen or an underscore are compared as one: `look-around` is neither
    /// about looking nor around anything.
    pub stem: String,
    /// The stems of such words, since others write them apart.
    pub parts: Vec<String>,
}

impl Term {
    fn of(word: &str) -> Self {
        let pieces: Vec<&str> = word
            .split(JOINTS)
            .filter(|piece| !piece.is_empty())
            .collect();
        match pieces.as_slice() {
            [] | [_] => Self {
                stem: stem(word),
                word: word.to_owned(),
                parts: Vec::new(),
            },
            [before @ .., last] => Self {
                stem: format!("{}{}", before.concat().to_lowercase(), stem(last)),
                parts: pieces.iter().map(|piece| stem(piece)).collect(),
                word: word.to_owned(),
            },
        }
    }

    /// Whether these stems hold the term, in one word or in several.
    pub(super) fn is_in(&self, stems: &[String]) -> bool {
        let has = |stem: &String| stems.iter().any(|known| known == stem);
        has(&self.stem) || !self.parts.is_empty() && self.parts.iter().all(has)
    }
}

/// Marks that make one word of several.
const JOINTS: [char; 3] = ['-', '_', '\u{2010}'];

/// The content words of a text, in order, repeats included.
pub(super) fn terms(text: &str) -> Vec<Term> {
    joined_words(text)
        .filter(|word| !is_stop_word(word))
        .map(Term::of)
        .collect()
}

/// The stems of a text, each once: those of its words, and of the parts of words that hang together.
pub(super) fn stems(text: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for term in terms(text) {
        for stem in std::iter::once(term.stem).chain(term.parts) {
            if !stem.is_empty() && !all.contains(&stem) {
                all.push(stem);
            }
        }
    }
    all
}

/// The content words of a question or goal: orders to whoever answers ("assess", "compare") say
/// nothing about the subject, so they go as well.
pub(super) fn subject_terms(text: &str) -> Vec<Term> {
    distinct(
        terms(text)
            .into_iter()
            .filter(|t| !is_instruction(&t.word))
            .collect(),
    )
}

/// Each stem once, in order of first appearance.
pub(super) fn distinct(terms: Vec<Term>) -> Vec<Term> {
    let mut seen: Vec<Term> = Vec::with_capacity(terms.len());
    for term in terms {
        if seen.iter().all(|known| known.stem != term.stem) {
            seen.push(term);
        }
    }
    seen
}

/// The words of a text as written, without punctuation and possessive endings.
pub(super) fn words(text: &str) -> impl Iterator<Item = &str> {
    pieces(text, &[])
}

/// The same, with words that hang together left so.
fn joined_words(text: &str) -> impl Iterator<Item = &str> {
    pieces(text, &JOINTS)
}

fn pieces<'t>(text: &'t str, joints: &'static [char]) -> impl Iterator<Item = &'t str> {
    text.split(move |c: char| !c.is_alphanumeric() && c != '\'' && c != '’' && !joints.contains(&c))
        .filter_map(move |piece| {
            let piece = piece.trim_matches(['\'', '’']).trim_matches(joints);
            let piece = piece
                .strip_suffix("'s")
                .or(piece.strip_suffix("’s"))
                .unwrap_or(piece);
            (!piece.is_empty()).then_some(piece)
        })
}

/// Whether a word carries no content. A single capital is a name ("Company X"), except `I` and `A`.
pub(super) fn is_stop_word(word: &str) -> bool {
    let lower = word.to_lowercase();
    if word.chars().count() == 1 {
        let names = word.chars().all(|c| c.is_uppercase() || c.is_numeric());
        return !names || matches!(word, "I" | "A");
    }
    STOP_WORDS.binary_search(&lower.as_str()).is_ok()
}

/// Whether a word orders something done rather than naming what it is about.
pub(super) fn is_instruction(word: &str) -> bool {
    INSTRUCTIONS
        .binary_search(&word.to_lowercase().as_str())
        .is_ok()
}

/// The stem of a word.
pub(super) fn stem(word: &str) -> String {
    let mut stem = word.to_lowercase();
    if let Ok(at) = IRREGULAR.binary_search_by_key(&stem.as_str(), |(form, _)| form) {
        IRREGULAR[at].1.clone_into(&mut stem);
        return stem;
    }
    if !stem.is_ascii() || stem.bytes().any(|b| !b.is_ascii_lowercase()) {
        return stem;
    }
    for _ in 0..5 {
        let Some(shorter) = cut(&stem) else { break };
        stem = shorter;
    }
    stem
}

/// Takes one ending off, if enough of the word remains.
fn cut(word: &str) -> Option<String> {
    for (ending, instead, least) in ENDINGS {
        if let Some(rest) = word.strip_suffix(ending) {
            if rest.len() < *least {
                continue;
            }
            let mut rest = rest.to_owned();
            if matches!(*ending, "ing" | "ed") {
                drop_double_consonant(&mut rest);
            }
            rest.push_str(instead);
            return Some(rest);
        }
    }
    plural(word)
}

fn plural(word: &str) -> Option<String> {
    let rest = word.strip_suffix('s')?;
    if rest.len() < 3 || rest.ends_with(['s', 'u', 'i']) {
        return None;
    }
    let sibilant = ["sse", "she", "che", "xe", "zze"];
    Some(if sibilant.iter().any(|end| rest.ends_with(end)) {
        rest[..rest.len() - 1].to_owned()
    } else {
        rest.to_owned()
    })
}

/// "shipping" is about a ship.
fn drop_double_consonant(word: &mut String) {
    let bytes = word.as_bytes();
    if let [.., a, b] = bytes
        && a == b
        && !matches!(a, b'a' | b'e' | b'i' | b'o' | b'u' | b'l' | b's' | b'z')
    {
        word.pop();
    }
}

/// Endings, what stands for them, and how much must remain. Longer ones first within a family.
const ENDINGS: &[(&str, &str, usize)] = &[
    ("isations", "", 4),
    ("izations", "", 4),
    ("isation", "", 4),
    ("ization", "", 4),
    ("ising", "", 4),
    ("izing", "", 4),
    ("ised", "", 4),
    ("ized", "", 4),
    ("ises", "", 4),
    ("izes", "", 4),
    ("ise", "", 4),
    ("ize", "", 4),
    ("yses", "ys", 3),
    ("ysis", "ys", 3),
    ("ytical", "ys", 3),
    ("ytic", "ys", 3),
    ("yse", "ys", 3),
    ("yze", "ys", 3),
    ("ationally", "", 4),
    ("ational", "", 4),
    ("ations", "", 4),
    ("ation", "", 4),
    ("atory", "", 4),
    ("ative", "", 4),
    ("ating", "", 4),
    ("ators", "", 4),
    ("ator", "", 4),
    ("ated", "", 4),
    ("ates", "", 4),
    ("ate", "", 4),
    ("bilities", "bl", 2),
    ("bility", "bl", 2),
    ("ble", "bl", 2),
    ("ically", "ic", 3),
    ("ical", "ic", 3),
    ("ics", "ic", 3),
    ("ially", "", 4),
    ("ials", "", 4),
    ("ial", "", 4),
    ("nesses", "", 4),
    ("ness", "", 4),
    ("ments", "", 4),
    ("ment", "", 4),
    // British and American spellings of one word.
    ("cence", "cens", 2),
    ("fence", "fens", 2),
    ("encies", "", 4),
    ("ancies", "", 4),
    ("ency", "", 4),
    ("ancy", "", 4),
    ("ances", "", 4),
    ("ences", "", 4),
    ("ance", "", 4),
    ("ence", "", 4),
    ("ants", "", 4),
    ("ents", "", 4),
    ("ant", "", 5),
    ("ent", "", 5),
    ("ities", "", 4),
    ("ity", "", 4),
    ("iers", "y", 4),
    ("ier", "y", 4),
    ("ied", "y", 3),
    ("ies", "y", 3),
    ("ously", "", 4),
    ("ous", "", 4),
    ("ively", "", 4),
    ("ives", "", 4),
    ("ive", "", 4),
    ("ary", "", 5),
    ("ally", "al", 4),
    ("als", "", 4),
    ("al", "", 4),
    ("ings", "", 4),
    ("ing", "", 4),
    ("ed", "", 4),
    ("ers", "", 4),
    ("ors", "", 4),
    ("er", "", 4),
    ("or", "", 4),
    ("ions", "", 5),
    ("ion", "", 5),
    ("ly", "", 5),
    ("e", "", 4),
    ("y", "", 4),
];

/// Forms whose endings do not lead to their word. Sorted, for binary search.
const IRREGULAR: &[(&str, &str)] = &[
    ("began", "begin"),
    ("begun", "begin"),
    ("bought", "buy"),
    ("broke", "break"),
    ("broken", "break"),
    ("built", "build"),
    ("chosen", "choo"),
    ("fell", "fall"),
    ("grew", "grow"),
    ("grown", "grow"),
    ("held", "hold"),
    ("led", "lead"),
    ("lost", "lose"),
    ("made", "make"),
    ("met", "meet"),
    ("owned", "own"),
    ("owner", "own"),
    ("owners", "own"),
    ("ownership", "own"),
    ("owning", "own"),
    ("owns", "own"),
    ("paid", "pay"),
    ("ran", "run"),
    ("risen", "rise"),
    ("rose", "rise"),
    ("sold", "sell"),
    ("spent", "spend"),
    ("won", "win"),
    ("written", "writ"),
    ("wrote", "writ"),
];

/// Sorted, for binary search.
const STOP_WORDS: &[&str] = &[
    "about", "above", "after", "again", "against", "all", "already", "also", "although", "always",
    "am", "among", "an", "and", "another", "any", "are", "around", "as", "at", "be", "became",
    "because", "been", "before", "being", "below", "between", "both", "but", "by", "can", "cannot",
    "could", "did", "do", "does", "doing", "done", "down", "during", "each", "either", "etc",
    "even", "ever", "every", "few", "for", "from", "further", "get", "given", "had", "has", "have",
    "having", "he", "hence", "her", "here", "hers", "him", "his", "how", "however", "if", "in",
    "into", "is", "it", "its", "itself", "just", "least", "less", "let", "like", "many", "may",
    "me", "might", "more", "most", "much", "must", "my", "neither", "no", "nor", "not", "of",
    "off", "often", "on", "once", "one", "only", "onto", "or", "other", "others", "our", "ours",
    "out", "over", "own", "per", "please", "quite", "rather", "same", "shall", "she", "should",
    "since", "so", "some", "still", "such", "than", "that", "the", "their", "theirs", "them",
    "then", "there", "these", "they", "this", "those", "though", "through", "thus", "to", "too",
    "toward", "towards", "under", "until", "up", "upon", "us", "use", "used", "uses", "using",
    "various", "very", "via", "was", "we", "were", "what", "when", "where", "whether", "which",
    "while", "who", "whole", "whom", "whose", "why", "will", "with", "within", "without", "would",
    "yet", "you", "your", "yours",
];

/// Sorted, for binary search.
const INSTRUCTIONS: &[&str] = &[
    "analyse",
    "analysing",
    "analysis",
    "analyze",
    "answer",
    "assess",
    "assessing",
    "assessment",
    "check",
    "clarify",
    "compare",
    "comparing",
    "comparison",
    "condense",
    "consider",
    "cover",
    "covering",
    "define",
    "describe",
    "determine",
    "discuss",
    "estimate",
    "evaluate",
    "evaluating",
    "examine",
    "explain",
    "explore",
    "find",
    "focus",
    "give",
    "help",
    "identify",
    "include",
    "including",
    "inspect",
    "investigate",
    "know",
    "list",
    "look",
    "make",
    "name",
    "need",
    "outline",
    "overview",
    "provide",
    "question",
    "regarding",
    "report",
    "research",
    "review",
    "say",
    "search",
    "see",
    "show",
    "state",
    "summarise",
    "summarize",
    "summary",
    "tell",
    "think",
    "understand",
    "want",
    "weigh",
    "write",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_lists_are_sorted() {
        assert!(STOP_WORDS.is_sorted());
        assert!(INSTRUCTIONS.is_sorted());
        assert!(IRREGULAR.is_sorted());
    }

    #[test]
    fn forms_of_a_word_share_a_stem() {
        let families: &[&[&str]] = &[
            &[
                "regulatory",
                "regulation",
                "regulations",
                "regulator",
                "regulated",
            ],
            &[
                "operate",
                "operating",
                "operation",
                "operations",
                "operational",
            ],
            &["reputation", "reputational"],
            &[
                "finance",
                "financial",
                "finances",
                "financing",
                "financially",
            ],
            &["legal", "legally"],
            &["assess", "assessment", "assessments", "assessing"],
            &[
                "summarise",
                "summarize",
                "summarisation",
                "summary",
                "summaries",
            ],
            &[
                "analyse",
                "analysis",
                "analyses",
                "analytic",
                "analytical",
                "analysed",
            ],
            &["supply", "supplies", "supplier", "suppliers"],
            &["liability", "liabilities", "liable"],
            &[
                "dependency",
                "dependencies",
                "dependent",
                "depends",
                "depend",
            ],
            &["security", "secure", "secured"],
            &["price", "prices", "pricing", "priced"],
            &["industry", "industrial", "industries"],
            &["litigation", "litigate"],
            &["ship", "shipping", "shipped"],
            &["company", "companies"],
            &["environment", "environmental"],
            &["cost", "costs"],
            &["tax", "taxes"],
            &["licence", "license", "licences", "licensed"],
            &["own", "owns", "owner", "ownership"],
            &["build", "built", "building"],
            &["rise", "rose"],
            &["choose", "chosen"],
            &["write", "written"],
        ];
        for family in families {
            let stems: Vec<String> = family.iter().map(|word| stem(word)).collect();
            assert!(
                stems.windows(2).all(|pair| pair[0] == pair[1]),
                "{family:?}: {stems:?}"
            );
        }
    }

    #[test]
    fn different_words_keep_apart() {
        for (one, other) in [
            ("legal", "leg"),
            ("report", "reputation"),
            ("invest", "investigate"),
            ("capital", "capture"),
            ("operate", "opera"),
            ("finance", "final"),
            ("bus", "business"),
            ("rate", "rating"),
        ] {
            assert_ne!(stem(one), stem(other), "{one} and {other}");
        }
    }

    #[test]
    fn content_words_are_kept_and_names_of_one_letter_too() {
        let stems = |text| terms(text).into_iter().map(|t| t.word).collect::<Vec<_>>();
        assert_eq!(
            stems("What is the risk of Company X's suppliers, and I?"),
            ["risk", "Company", "X", "suppliers"]
        );
        let subject: Vec<String> = subject_terms("Assess the risk and the risks of a bridge")
            .into_iter()
            .map(|t| t.word)
            .collect();
        assert_eq!(subject, ["risk", "bridge"]);
    }

    #[test]
    fn words_that_hang_together_are_one_and_match_when_written_apart() {
        let asked = subject_terms("Does it support look-around and serde_json?");
        let shown: Vec<&str> = asked.iter().map(|t| t.word.as_str()).collect();
        assert_eq!(shown, ["support", "look-around", "serde_json"]);
        for (text, expected) in [
            ("Look-around is missing", true),
            ("No lookaround here", true),
            ("Look at what is around", false),
        ] {
            assert_eq!(asked[1].is_in(&stems(text)), expected, "{text}");
        }
        assert!(asked[2].is_in(&stems("the JSON side of serde")));
    }
}
