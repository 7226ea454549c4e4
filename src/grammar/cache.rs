//! Compiled grammars, the least recently used one dropped first.

/// Grammars kept.
const MAX_ENTRIES: usize = 32;
/// Bytes of their texts kept; what is compiled from them grows with these.
const MAX_BYTES: usize = 1 << 20;

/// A few values by text. Small enough to be searched from end to end.
#[derive(Debug)]
pub(super) struct Cache<T> {
    /// The most recently used one last.
    entries: Vec<(String, T)>,
}

impl<T> Cache<T> {
    /// Nothing.
    pub fn new() -> Self {
        Cache { entries: Vec::new() }
    }

    /// The value of a text, if it is kept.
    pub fn get(&mut self, key: &str) -> Option<&T> {
        let at = self.entries.iter().position(|(text, _)| text == key)?;
        let entry = self.entries.remove(at);
        self.entries.push(entry);
        self.entries.last().map(|(_, value)| value)
    }

    /// Keeps a value; a text too long to be kept beside others is not.
    pub fn insert(&mut self, key: String, value: T) {
        self.entries.retain(|(text, _)| *text != key);
        if key.len() > MAX_BYTES {
            return;
        }
        self.entries.push((key, value));
        let bytes = |entries: &[(String, T)]| entries.iter().map(|(text, _)| text.len()).sum::<usize>();
        while self.entries.len() > MAX_ENTRIES || bytes(&self.entries) > MAX_BYTES {
            self.entries.remove(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_goes_first() {
        let mut cache = Cache::new();
        for i in 0..MAX_ENTRIES {
            cache.insert(i.to_string(), i);
        }
        assert_eq!(cache.get("0"), Some(&0));
        cache.insert("new".to_owned(), 99);
        let kept = ["0", "1", "new"].map(|key| cache.get(key).copied());
        assert_eq!(kept, [Some(0), None, Some(99)]);
    }

    #[test]
    fn the_texts_have_a_limit_together() {
        let mut cache = Cache::new();
        for i in 0..3 {
            cache.insert(i.to_string().repeat(MAX_BYTES / 2), i);
        }
        assert_eq!(cache.entries.len(), 2);
        cache.insert("x".repeat(MAX_BYTES + 1), 9);
        assert_eq!(cache.entries.len(), 2);
    }
}
