/** Where the program of the reading thread is: builds have it in a file of its own beside what imports this. */
const program = import.meta.url.endsWith(".ts") ? "./program.ts" : "./document-reader.mjs";

export const programUrl: URL = new URL(program, import.meta.url);
