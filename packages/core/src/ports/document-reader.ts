/**
 * Text of files whose formats take a program to read. They come from outside and are read as hostile: in a thread of
 * their own, which is ended at the time limit and has so much memory and no more.
 */
export type DocumentFormat = "pdf" | "docx" | "html";

export interface ReadOptions {
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
  readonly maxCharacters: number;
  readonly maxPages: number;
}

export interface DocumentReader {
  /**
   * The text; headings of HTML and DOCX as in Markdown.
   * @throws GatewayError `document_unreadable`, `document_too_large`; `call_cancelled` where the signal has aborted
   */
  read(format: DocumentFormat, bytes: Uint8Array, options: ReadOptions): Promise<string>;
}
