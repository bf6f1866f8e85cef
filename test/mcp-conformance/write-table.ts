/** `npm run conformance:table`: writes docs/mcp-conformance.md. */
import { writeFile } from "node:fs/promises";
import { resolve } from "node:path";
import { suiteVersion } from "./suite.ts";
import { renderPage, tablePath } from "./table.ts";

await writeFile(resolve(import.meta.dirname, "../..", tablePath), renderPage(await suiteVersion()));
console.log(`${tablePath} is written.`);
