/** `npm run coverage:requirements`: writes docs/requirements.md. */
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { readCitations, renderTable, root, tablePath, uncitedIds } from "./coverage.ts";

const citations = await readCitations();
await writeFile(join(root, tablePath), renderTable(citations));
console.log(`${tablePath} is written; ${uncitedIds(citations).length} requirements are not cited by a test.`);
