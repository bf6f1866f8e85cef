/** What rarely changes is sent with an entity tag, and answered with 304 to a client that has it. */
import { createHash } from "node:crypto";
import { headerOf, type AppContext } from "./app-env.ts";

export interface Page {
  readonly text: string;
  readonly tag: string;
}

export function toPage(text: string): Page {
  return { text, tag: `"${createHash("sha256").update(text).digest("base64url").slice(0, 22)}"` };
}

export function answerPage(c: AppContext, page: Page, headers: Readonly<Record<string, string>>): Response {
  // The same for everybody, but asked for again each time: a new release changes it.
  const all = { ...headers, etag: page.tag, "cache-control": "no-cache" };
  return isKnown(c, page.tag) ? c.body(null, 304, all) : c.body(page.text, 200, all);
}

/** Has the client said that it has this one (`If-None-Match`)? */
export function isKnown(c: AppContext, tag: string): boolean {
  const known = (headerOf(c, "if-none-match") ?? "").split(",").map((part) => part.trim().replace(/^W\//, ""));
  return known.includes(tag) || known.includes("*");
}
