//! Days as people write them, in English and in Slovak: `2026-03-15`, `15.3.`, `tomorrow`, `zajtra`, `piatok`.

use chrono::{Datelike as _, Duration, Local, NaiveDate, NaiveDateTime};

/// Words for a number of days from today.
const NEAR: &[(&str, i64)] = &[
    ("today", 0),
    ("dnes", 0),
    ("tomorrow", 1),
    ("zajtra", 1),
    ("pozajtra", 2),
    ("in a week", 7),
    ("next week", 7),
    ("o týždeň", 7),
    ("o tyzden", 7),
];
/// Beginnings of the days of the week, from Monday: no two of a language begin alike.
const WEEK: [[&str; 3]; 7] = [
    ["monday", "pondel", "pondel"],
    ["tuesday", "utor", "utor"],
    ["wednesday", "stred", "stred"],
    ["thursday", "štvrt", "stvrt"],
    ["friday", "piat", "piat"],
    ["saturday", "sobot", "sobot"],
    ["sunday", "nedeľ", "nedel"],
];

/// The day of a text. One of the week is the next such day; one without a year is the next that comes.
pub(crate) fn read(text: &str, today: NaiveDate) -> Option<NaiveDate> {
    let text = text.trim().to_lowercase();
    if let Some((_, days)) = NEAR.iter().find(|(word, _)| *word == text) {
        return Some(today + Duration::days(*days));
    }
    for format in ["%Y-%m-%d", "%d.%m.%Y", "%d. %m. %Y"] {
        if let Ok(day) = NaiveDate::parse_from_str(&text, format) {
            return Some(day);
        }
    }
    if let Some((day, month)) = text.trim_end_matches('.').split_once('.') {
        let (day, month) = (day.trim().parse().ok()?, month.trim().parse().ok()?);
        let this = NaiveDate::from_ymd_opt(today.year(), month, day)?;
        let next = || NaiveDate::from_ymd_opt(today.year() + 1, month, day);
        return if this < today { next() } else { Some(this) };
    }
    let named = text.rsplit(' ').next()?;
    let is_day = |names: &[&str; 3]| names.iter().any(|name| named.starts_with(name));
    let wanted = WEEK.iter().position(is_day)? as i64;
    let now = i64::from(today.weekday().num_days_from_monday());
    let ahead = (wanted - now - 1).rem_euclid(7) + 1;
    Some(today + Duration::days(ahead))
}

pub(crate) fn today() -> NaiveDate {
    Local::now().date_naive()
}

/// The present moment, as moments are kept.
pub(crate) fn now() -> String {
    Local::now().format("%Y-%m-%dT%H:%M").to_string()
}

/// The moment of a text: a day at nine, or a day with a time behind `T` or a space.
pub(crate) fn moment(text: &str, today: NaiveDate) -> Option<NaiveDateTime> {
    let text = text.trim().trim_end_matches('Z');
    for format in ["%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M:%S"] {
        if let Ok(moment) = NaiveDateTime::parse_from_str(text, format) {
            return Some(moment);
        }
    }
    read(text, today)?.and_hms_opt(9, 0, 0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn days_are_read_as_people_write_them() {
        // A Wednesday.
        let today = NaiveDate::from_ymd_opt(2026, 3, 18).unwrap();
        for (text, expected) in [
            ("2026-04-02", Some("2026-04-02")),
            ("2.4.2026", Some("2026-04-02")),
            ("15.3.", Some("2027-03-15")),
            ("19. 3.", Some("2026-03-19")),
            ("Zajtra", Some("2026-03-19")),
            ("tomorrow", Some("2026-03-19")),
            ("v piatok", Some("2026-03-20")),
            ("Wednesday", Some("2026-03-25")),
            ("v stredu", Some("2026-03-25")),
            ("31.2.", None),
            ("niekedy", None),
            ("", None),
        ] {
            let day = read(text, today).map(|day| day.to_string());
            assert_eq!(day.as_deref(), expected, "{text}");
        }
        for (text, expected) in [
            ("2026-04-02T17:30", Some("2026-04-02 17:30:00")),
            ("2026-04-02 17:30", Some("2026-04-02 17:30:00")),
            ("2026-04-02", Some("2026-04-02 09:00:00")),
            ("2026-04-02T25:00", None),
        ] {
            let moment = moment(text, today).map(|moment| moment.to_string());
            assert_eq!(moment.as_deref(), expected, "{text}");
        }
    }
}
