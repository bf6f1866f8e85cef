/** What the thread that reads a document is given, and what it says. */
import type { DocumentFormat, ReadOptions } from "@toolyard/core/ports/document-reader";

export interface ReadOrder extends Pick<ReadOptions, "maxCharacters" | "maxPages"> {
  readonly format: DocumentFormat;
  readonly bytes: Uint8Array;
}

export type ReadAnswer =
  | { readonly kind: "text"; readonly text: string }
  | { readonly kind: "unreadable" | "too-large"; readonly reason: string };
