/** What the conformance suite of the Model Context Protocol says of us, as rows that tests hold against its results. */
import { clientRows } from "./client-rows.ts";
import { serverRows } from "./server-rows.ts";
import type { ConformanceRow } from "./row.ts";

export const tablePath = "docs/mcp-conformance.md";

/** The release of `@modelcontextprotocol/conformance`, as installed. */
export function renderPage(suiteVersion: string): string {
  return `# MCP conformance

Results of the official suite, \`@modelcontextprotocol/conformance\` ${suiteVersion}. This page is made from
\`test/mcp-conformance/*-rows.ts\` by \`npm run conformance:table\`; \`npm run test:mcp-conformance\` runs the suite
and fails where a result is not the row's, and a contract test fails where this page is not current.

A scenario **passes** if no check of it fails. **Passes what applies**: the checks that fail are about something that is
not offered, each with its reason. **Not applicable**: all of it is.

## Server: \`/mcp\`

The suite's test tools are those of an MCP server behind a tool service (\`test/mcp-conformance/server-fixture.ts\`), reached at
\`/mcp/{service}\`, where they have the names that the suite expects. The suite has no credentials, so a proxy adds a key.

${renderRows(serverRows)}

## Client: \`mcp://\`

${clientRows.length === 0 ? "No rows yet." : renderRows(clientRows)}

## Adding rows

A row is an entry of \`serverRows\` or \`clientRows\`: scenario, revisions, and the reason where something does not pass.
Client rows need a test beside \`server.test.ts\` that runs \`conformance client --command …\` with \`readChecks\` of
\`suite.ts\` and holds each row against what came out with \`expectRow\`; then \`npm run conformance:table\`.
`;
}

function renderRows(rows: readonly ConformanceRow[]): string {
  const lines = rows.map((row) => {
    const cells = [`\`${row.scenario}\``, row.revisions.join(", "), resultOf(row), reasonOf(row)];
    return `| ${cells.join(" | ")} |`;
  });
  return ["| scenario | revisions | result | reason |", "|---|---|---|---|", ...lines].join("\n");
}

function resultOf({ notApplicable, exceptions }: ConformanceRow): string {
  if (notApplicable !== undefined) return "not applicable";
  return exceptions === undefined ? "passes" : "passes what applies";
}

function reasonOf({ notApplicable, exceptions = {} }: ConformanceRow): string {
  return (
    notApplicable ??
    Object.entries(exceptions)
      .map(([id, why]) => `\`${id}\`: ${why}`)
      .join("<br>")
  );
}
