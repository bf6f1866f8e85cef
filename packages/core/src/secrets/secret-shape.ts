/**
 * What is plainly a secret, by its own form or by what it is called. Definitions and names of credentials are shown to
 * callers and models and stand in addresses and records, so a secret that was written there must not get that far.
 */

/** Tokens whose issuers mark them, our own keys among them. */
const marked =
  /^(?:sk|pk|rk)[-_](?:live|test|proj|ant|or)|^sk-[A-Za-z0-9]{16}|^gh[opsur]_[A-Za-z0-9]{16}|^github_pat_|^glpat-|^xox[abeprs]-|^(?:AKIA|ASIA)[A-Z0-9]{16}$|^AIza[\w-]{30}|^ya29\.|^eyJ[\w-]{10}|^hf_[A-Za-z0-9]{16}|^SG\.[\w-]{16}|^npm_[A-Za-z0-9]{30}|^shp(?:at|ss)_|^ty_(?:operator_)?[\w-]{16}/;

export function isToken(text: string): boolean {
  return marked.test(text);
}

const hexadecimal = /^(?:[0-9a-f]{32,}|[0-9A-F]{32,})$/;

/** Is it a token, or twenty and more letters of both cases and digits in a jumble? Names that people give have words. */
export function looksLikeSecret(text: string): boolean {
  if (isToken(text) || hexadecimal.test(text)) return true;
  return (text.match(/[A-Za-z0-9]{20,}/g) ?? []).some(
    (run) => /[a-z]/.test(run) && /[A-Z]/.test(run) && (run.match(/\d+/g)?.length ?? 0) >= 3,
  );
}

/** Headers, query parameters and the like that everybody takes for secrets by their names. */
export function isSecretName(name: string): boolean {
  const words = name.toLowerCase().replaceAll(/[^a-z0-9]+/g, "-");
  return (
    /(?:^|-)(?:authorization|cookie|password|passwd|secret|token|credential|credentials|signature)(?:-|$)/.test(
      words,
    ) ||
    /(?:^|-)(?:api|access|private|auth|secret)-?key(?:-|$)/.test(words) ||
    /(?:access|client|api|auth)-?(?:token|secret)$/.test(words)
  );
}

/** What stands in the place of a credential's name, as the end of a sentence about the field. */
export const notAName =
  "is the name under which a secret is stored, and this looks like a secret itself; store it with PUT /v1/credentials/{name} under a name of your own, and write that name here";
