/** Where the program of the reading thread is; bundles have it in a file beside them. */
export const programUrl = new URL("./program.ts", import.meta.url);
