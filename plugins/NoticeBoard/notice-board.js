/** A VCP service: a CommonJS module that stays loaded and answers routes. Its notices lie in its own folder. */
"use strict";

const { existsSync, readFileSync, writeFileSync } = require("node:fs");
const { join } = require("node:path");

const file = join(__dirname, "notices.json");
let notices = [];
let most = 100;

module.exports = {
  initialize(config) {
    most = config.MOST_NOTICES;
    if (existsSync(file)) notices = JSON.parse(readFileSync(file, "utf8"));
  },

  registerApiRoutes(router) {
    router.get("/notices", (request, response) => {
      response.json({ notices });
    });
    router.post("/notices", (request, response) => {
      const text = typeof request.body?.text === "string" ? request.body.text.trim() : "";
      if (text === "") {
        response.status(400).json({ error: "A notice needs a 'text'." });
        return;
      }
      const notice = { id: (notices.at(-1)?.id ?? 0) + 1, text };
      notices = [...notices, notice].slice(-most);
      writeFileSync(file, JSON.stringify(notices));
      response.status(201).json(notice);
    });
    router.delete("/notices/:id", (request, response) => {
      const left = notices.filter(({ id }) => String(id) !== request.params.id);
      const status = left.length < notices.length ? 204 : 404;
      notices = left;
      writeFileSync(file, JSON.stringify(notices));
      response.status(status).end();
    });
  },
};
