/** What the browser of somebody who connects an account sees: one sentence, no scripts, nothing from elsewhere. */
import { createHash } from "node:crypto";

const style = `
:root { color-scheme: light dark; }
body { font: 17px/1.5 system-ui, sans-serif; margin: 18vh auto 0; max-width: 32rem; padding: 0 1rem; text-align: center; }
h1 { font-size: 1.4rem; } p { opacity: .8; }
`;

/** Allows exactly the style above, and no page around it. */
const policy = `default-src 'none'; style-src 'sha256-${createHash("sha256").update(style).digest("base64")}'; base-uri 'none'; frame-ancestors 'none'; form-action 'none'`;

export const connectPageHeaders = {
  "content-type": "text/html; charset=utf-8",
  "content-security-policy": policy,
  "referrer-policy": "no-referrer",
} as const;

export interface ConnectPage {
  readonly title: string;
  readonly text: string;
}

export function renderConnectPage({ title, text }: ConnectPage): string {
  return `<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><meta name="robots" content="noindex"><title>${escapeHtml(title)}</title><style>${style}</style></head>
<body><h1>${escapeHtml(title)}</h1><p>${escapeHtml(text)}</p></body>
</html>
`;
}

const entities: Readonly<Record<string, string>> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
  "'": "&#39;",
};

function escapeHtml(text: string): string {
  return text.replace(/[&<>"']/g, (character) => entities[character] ?? "");
}
