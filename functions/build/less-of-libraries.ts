/** What bundles leave out of libraries: it would be read at every start, stay in memory, and never run. */
import type { Plugin } from "esbuild";

/** Messages of validators are made in English only; the other languages are most of zod's size. */
export const onlyEnglish: Plugin = {
  name: "only-english",
  setup(build) {
    build.onLoad({ filter: /zod\/v4\/locales\/index\.js$/ }, () => ({
      contents: `export { default as en } from "./en.js";`,
    }));
  },
};

/**
 * Of the HTTP client only the dispatcher is used: its `fetch`, caches and WebSockets stay out, and so do
 * HTTP/2, which we never ask for (Node's module for it costs 9 ms of a start), a parser that this runtime
 * never picks (without SIMD), and the types of `fetch` (for bodies that are forms or blobs; ours are bytes
 * or text). A test sees to it that they are reached from nowhere else.
 */
export const onlyDispatcher: Plugin = {
  name: "only-dispatcher",
  setup(build) {
    // The client's own switch for a copy that has one parser of HTTP/1.
    build.initialOptions.define = { ...build.initialOptions.define, esbuildDetection: "true" };
    build.onLoad({ filter: /node_modules\/undici\/index\.js$/ }, () => ({
      contents: `exports.Pool = require("./lib/dispatcher/pool.js"); exports.Client = require("./lib/dispatcher/client.js"); exports.buildConnector = require("./lib/core/connect.js");`,
    }));
    build.onLoad({ filter: /node_modules\/undici\/lib\/llhttp\/llhttp-wasm\.js$/ }, () => ({
      contents: `throw new Error("this HTTP parser is not part of the bundle");`,
    }));
    build.onLoad({ filter: /node_modules\/undici\/lib\/dispatcher\/client-h2\.js$/ }, () => ({
      contents: `module.exports = () => { throw new Error("HTTP/2 is not part of the bundle"); };`,
    }));
    build.onLoad({ filter: /node_modules\/undici\/lib\/web\/\S+\.js$/ }, () => ({
      contents: `throw new Error("the types of fetch are not part of the bundle");`,
    }));
    // It checks itself some forty times a request: Node's way there takes two calls and a list of parameters for each.
    build.onResolve({ filter: /^node:assert$/ }, ({ importer }) =>
      /node_modules\/undici\//.test(importer) ? { path: "assert", namespace: "only-dispatcher" } : undefined,
    );
    build.onLoad({ filter: /^assert$/, namespace: "only-dispatcher" }, () => ({
      contents: `module.exports = (holds, message) => {
        if (!holds) throw message instanceof Error ? message : new Error(message ?? "the HTTP client is not as it should be");
      };`,
    }));
  },
};
