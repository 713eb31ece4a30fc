/** One fenced block of code of a Markdown text. */
export interface CodeBlock {
  /** As written behind the fence: `ts`, `sh`; empty when there is none. */
  readonly language: string
  readonly code: string
  /** The line of the first line of code, from 1. */
  readonly line: number
}

/**
 * The fenced blocks of a Markdown text, in order.
 * @throws Error for a fence that is never closed
 */
export function codeBlocks(markdown: string): CodeBlock[] {
  const blocks: CodeBlock[] = []
  let open: { language: string; line: number; code: string[] } | undefined
  for (const [index, text] of markdown.split("\n").entries()) {
    const fence = /^```(\S*)\s*$/.exec(text)
    if (fence === null) open?.code.push(text)
    else if (open === undefined) open = { language: fence[1] as string, line: index + 2, code: [] }
    else {
      blocks.push({ language: open.language, line: open.line, code: `${open.code.join("\n")}\n` })
      open = undefined
    }
  }
  if (open !== undefined) throw new Error(`the block of code that begins in line ${open.line} is never closed`)
  return blocks
}
