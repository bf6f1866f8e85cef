/** Where the program of reading threads is; bundles have it in a file beside them (functions/build/server.ts). */
const isSource = import.meta.url.endsWith(".ts");

export const readerProgramUrl = new URL(isSource ? "./reader-program.ts" : "./database-reader.mjs", import.meta.url);
