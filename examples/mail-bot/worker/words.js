// Decodes the encoded words of a header field (RFC 2047), such as =?utf-8?q?Gr=C3=BC=C3=9Fe?=.

const WORD = /=\?([^?*]+)(?:\*[^?]*)?\?([bq])\?([^?]*)\?=/gi

export function decodeWords(text) {
  // Spaces between two encoded words are not a part of the text.
  const joined = text.replace(/(\?=)\s+(?==\?)/g, '$1')
  return joined.replace(WORD, (word, charset, encoding, content) => {
    try {
      return new TextDecoder(charset).decode(encoding.toLowerCase() === 'b' ? base64(content) : quoted(content))
    } catch {
      return word
    }
  })
}

function base64(content) {
  return Uint8Array.fromBase64(content)
}

function quoted(content) {
  const characters = content
    .replaceAll('_', ' ')
    .replace(/=([0-9a-f]{2})/gi, (_, byte) => String.fromCharCode(parseInt(byte, 16)))
  return Uint8Array.from(characters, character => character.charCodeAt(0))
}
