/** A VCP hybrid service: one CommonJS module that is a tool, a message preprocessor and a route. */
"use strict";

let title = "";
const lines = [];

module.exports = {
  initialize(config) {
    title = config.NOTEBOOK_TITLE;
  },

  async processToolCall({ command = "read", text }) {
    if (command === "read") return { title, lines };
    if (command !== "write") throw new Error(`There is no command '${command}'; known: write, read.`);
    if (typeof text !== "string" || text.trim() === "") throw new Error("'text' is missing: the line to write.");
    lines.push(text.trim());
    return `Line ${lines.length} is written.`;
  },

  /** The model is reminded of the last line. */
  processMessages(messages) {
    const last = lines.at(-1);
    if (last === undefined) return messages;
    const note = { role: "system", content: `Last line of the notebook '${title}' (${lines.length} in all): ${last}` };
    return [note, ...messages];
  },

  registerRoutes(app) {
    app.get("/", (request, response) => {
      response.type("text/plain").send([title, ...lines].join("\n"));
    });
    app.get("/lines/:number", (request, response) => {
      const line = lines[Number(request.params.number) - 1];
      if (line === undefined) response.status(404).json({ error: "There is no such line." });
      else response.json({ line });
    });
  },
};
