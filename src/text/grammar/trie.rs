//! A tokenizer as grammars see it.
//!
//! Owns: the tree of all tokens' bytes, and the tokens of bytes that must come. Refuses to know: grammars.

use std::sync::Arc;

use llguidance::toktrie::{TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv};

use crate::text::{Specials, Tokenizer};
use crate::{Error, Result};

/// A tokenizer and the tree of its tokens.
pub struct Trie {
    tokenizer: Tokenizer,
    trie: TokTrie,
}

impl Trie {
    /// Special tokens, and those that end a text, stand behind a byte that no text contains, so that no text allows them.
    ///
    /// # Errors
    /// If no token ends a text.
    pub fn env(tokenizer: &Tokenizer) -> Result<TokEnv> {
        let Some(&end) = tokenizer.eog().first() else {
            return Err(Error::new("the vocabulary has no token that ends a text; a grammar needs one"));
        };
        let size = tokenizer.vocab_size() as u32;
        let word = |id: u32| -> Result<Vec<u8>> {
            let bytes = tokenizer.token_bytes(id)?;
            let marker = (tokenizer.is_special(id) || tokenizer.is_eog(id)).then_some(TokTrie::SPECIAL_TOKEN_MARKER);
            Ok(marker.into_iter().chain(bytes.iter().copied()).collect())
        };
        let words: Vec<Vec<u8>> = (0..size).map(word).collect::<Result<_>>()?;
        let trie = TokTrie::from(&TokRxInfo::new(size, end), &words).with_eos_tokens(tokenizer.eog());
        Ok(Arc::new(Trie { tokenizer: tokenizer.clone(), trie }))
    }
}

impl TokenizerEnv for Trie {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        self.trie.tokenize_with_greedy_fallback(bytes, |text| {
            let ids = self.tokenizer.encode(text, Specials::AsText).unwrap_or_default();
            // Composing characters (NFC) changes bytes; a grammar that asks for the others means them.
            let same = self.tokenizer.decode(&ids).is_ok_and(|bytes| bytes == text.as_bytes());
            if same { ids } else { self.trie.greedy_tokenize(text.as_bytes()) }
        })
    }
}
