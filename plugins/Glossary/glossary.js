/** A VCP message preprocessor: a CommonJS module that is given the messages and gives them back. */
"use strict";

let words = new Map();

module.exports = {
  initialize(config) {
    const lines = String(config.GLOSSARY ?? "").split("\n");
    words = new Map(
      lines.flatMap((line) => {
        const at = line.indexOf(":");
        return at < 1 ? [] : [[line.slice(0, at).trim(), line.slice(at + 1).trim()]];
      }),
    );
  },

  /** What is explained is explained once, before the last message. */
  processMessages(messages) {
    const text = messages.map(({ content }) => textOf(content)).join("\n");
    const used = [...words].filter(([word]) => text.includes(word));
    if (used.length === 0) return messages;
    const explained = used.map(([word, meaning]) => `- ${word}: ${meaning}`).join("\n");
    const note = { role: "system", content: `Words of this house:\n${explained}` };
    return [...messages.slice(0, -1), note, ...messages.slice(-1)];
  },
};

function textOf(content) {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return "";
  return content.map((part) => (part?.type === "text" ? String(part.text) : "")).join("\n");
}
