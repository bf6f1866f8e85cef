/**
 * Runs before every npm script that needs Node 24 (TypeScript by type stripping). npm puts
 * node_modules/.bin first, where the `node` dev dependency is; without it an older Node would only
 * say "unknown file extension". Plain JavaScript, so that any Node can read it.
 */
const major = Number(process.versions.node.split(".")[0]);
if (major < 24) {
  process.stderr.write(
    `Toolyard needs Node 24; this is Node ${process.versions.node} (${process.execPath}).\n` +
      "Run `npm ci` first: it installs Node 24 into node_modules, and npm scripts use that one. " +
      "If it was run, its install script for the package `node` was skipped: `npm rebuild node` repeats it.\n",
  );
  process.exit(1);
}
