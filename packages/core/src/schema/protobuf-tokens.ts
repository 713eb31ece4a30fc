import { InvalidError } from "@millrace/contract"

/** One of: white space, a comment, a quoted string, a word or number, any other character. */
const pattern = /(\s+|\/\/[^\n]*|\/\*[\s\S]*?\*\/)|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|[\w.]+|[\s\S]/g

/**
 * The tokens of a Protobuf schema, comments and layout left out.
 * @throws InvalidError for a string or a comment that does not end
 */
export function protobufTokens(text: string): string[] {
  const tokens: string[] = []
  for (const [token, blank] of text.matchAll(pattern)) {
    if (blank !== undefined) continue
    if (token === '"' || token === "'") throw new InvalidError("the Protobuf schema has a string that does not end")
    if (token === "/") throw new InvalidError("the Protobuf schema has a comment that does not end")
    tokens.push(token)
  }
  return tokens
}
