//! Functions of PHP in which requests compute or wait, as parts of sentences. Source: the collector `php_functions`.

use crate::facts::{FactId, Facts};
use webdyno_model::fact::Fact;

/// A smaller share is not worth a word, and more of them are no sentence.
const TOLD_MIN: f64 = 0.1;
const TOLD_MAX: usize = 3;

/// What computes most.
pub(crate) const COMPUTING: FactId = FactId::php_computing_fraction;
/// What waits most.
pub(crate) const WAITING: FactId = FactId::php_waiting_fraction;

/// `46% in md5, called by Shop::prices, 20% in page.php`; `None` where nobody looked, or no function stands out.
pub(crate) fn text(facts: &Facts, fraction: FactId) -> Option<String> {
    let one = |(place, share): &(&str, f64)| {
        let place = place
            .split_once(';')
            .map_or((*place).to_owned(), |(by, called)| format!("{called}, called by {by}"));
        format!("{:.0}% in {place}", share * 100.0)
    };
    let told: Vec<String> = largest(facts, fraction).iter().map(one).collect();
    (!told.is_empty()).then(|| told.join(", "))
}

/// The facts behind that text.
pub(crate) fn cite(facts: &Facts, fraction: FactId) -> Vec<Fact> {
    largest(facts, fraction).iter().flat_map(|(place, _)| facts.cite_of(&[fraction], place)).collect()
}

fn largest(facts: &Facts, fraction: FactId) -> Vec<(&str, f64)> {
    let mut all: Vec<(&str, f64)> = facts.each(fraction).filter(|(_, share)| *share >= TOLD_MIN).collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1));
    all.truncate(TOLD_MAX);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts, of_pool};

    #[test]
    fn the_functions_with_the_largest_shares_are_told_with_who_called_them() {
        let mut facts = facts(&[], &[]);
        assert_eq!(text(&facts, WAITING), None);
        for (place, share) in
            [("Shop::prices;curl_exec", 0.61), ("page.php", 0.2), ("a", 0.12), ("b", 0.11), ("c", 0.06)]
        {
            of_pool(&mut facts, place, &[(WAITING, share)]);
        }
        let expected = "61% in curl_exec, called by Shop::prices, 20% in page.php, 12% in a";
        assert_eq!(text(&facts, WAITING).as_deref(), Some(expected));
        assert_eq!((cite(&facts, WAITING).len(), text(&facts, COMPUTING)), (3, None));
    }
}
