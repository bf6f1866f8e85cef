/**
 * What takes long is for nights and releases: TOOLYARD_TESTS=long (`.ci/full`) runs it, and so does
 * `npm run test:services` for its suites. Every other run has a shorter form of it, or names it as left out.
 */
export const isLong = process.env["TOOLYARD_TESTS"] === "long" || process.env["TOOLYARD_SERVICES"] !== undefined;

/** Behind the name of a test that is only in long runs. */
export const whyLeftOut = isLong ? "" : " (left out: takes long; TOOLYARD_TESTS=long)";
