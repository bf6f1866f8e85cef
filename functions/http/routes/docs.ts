/** What people, models and security researchers read first (conventions "Routes"). */
import { defineRoute } from "../define-route.ts";
import { answerPage } from "../entity-tag.ts";

const open = { method: "get", tags: ["documentation"], scope: null, admission: "none" } as const;

export const root = defineRoute({
  ...open,
  path: "/",
  summary: "To the documentation",
  responses: { 302: { description: "To /docs" } },
  handler: (c) => c.redirect("/docs", 302),
});

export const docs = defineRoute({
  ...open,
  path: "/docs",
  summary: "This API for people",
  responses: { 200: { description: "An HTML page that loads nothing else", mediaType: "text/html" } },
  async handler(c, input) {
    const [{ pagesOf }, { docsPolicy }] = await Promise.all([import("../pages.ts"), import("../docs.ts")]);
    return answerPage(c, pagesOf(input).docs, {
      "content-type": "text/html; charset=utf-8",
      "content-security-policy": docsPolicy,
    });
  },
});

export const llms = defineRoute({
  ...open,
  path: "/llms.txt",
  summary: "This API for language models",
  responses: { 200: { description: "Markdown", mediaType: "text/plain" } },
  async handler(c, input) {
    const { pagesOf } = await import("../pages.ts");
    return answerPage(c, pagesOf(input).llms, { "content-type": "text/plain; charset=utf-8" });
  },
});

/** RFC 9116 wants the date less than a year away. */
const validMs = 180 * 86_400_000;

export const security = defineRoute({
  ...open,
  path: "/.well-known/security.txt",
  summary: "Where to report a security problem (RFC 9116)",
  responses: { 200: { description: "Plain text", mediaType: "text/plain" } },
  handler(c, { app }) {
    const { publicUrl, clock } = app.core;
    const lines = [
      `Contact: ${app.securityContact ?? `${publicUrl}/docs#security`}`,
      `Expires: ${new Date(clock.now() + validMs).toISOString()}`,
      "Preferred-Languages: en, zh",
      `Canonical: ${publicUrl}/.well-known/security.txt`,
    ];
    return c.text(`${lines.join("\n")}\n`);
  },
});
