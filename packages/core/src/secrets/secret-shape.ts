/**
 * What is plainly a secret, by its own form or by what it is called. Definitions and names of credentials are shown to
 * callers and models and stand in addresses and records, so a secret that was written there must not get that far.
 */

/** Marks that issuers put before their tokens, our own keys among them; what follows is no words. */
const marks = /^(?:(?:sk|pk|rk)[-_]|gh[opsur]_|github_pat_|glpat-|xox[abeprs]-|hf_|npm_|shp(?:at|ss)_|SG\.|ya29\.|ty_)/;
const jumble = /(?=[A-Za-z0-9]*\d)(?=[A-Za-z0-9]*[A-Za-z])[A-Za-z0-9]{16}/;
/** Forms that are theirs alone. */
const forms =
  /^glpat-[\w-]{20,}$|^ty_(?:operator|[a-z0-9]{8,})_[\w-]{32,}$|^(?:AKIA|ASIA)[A-Z0-9]{16}$|^AIza[\w-]{30,40}$|^eyJ[\w-]{10,}\.[\w-]{10,}/;

export function isToken(text: string): boolean {
  return forms.test(text) || (marks.test(text) && jumble.test(text));
}

const hexadecimal = /^(?:[0-9a-f]{32,}|[0-9A-F]{32,})$/;

/** Is it a token, or 32 and more letters of both cases and digits in a jumble? Names that people give have words. */
export function looksLikeSecret(text: string): boolean {
  if (isToken(text) || hexadecimal.test(text)) return true;
  return (text.match(/[A-Za-z0-9]{32,}/g) ?? []).some(
    (run) => /[a-z]/.test(run) && /[A-Z]/.test(run) && (run.match(/\d+/g)?.length ?? 0) >= 3,
  );
}

const calledSecret = /passw(?:or)?d|secret|(?:api|access|private|auth|subscription|functions)[-_]?key$/i;
/** `token`, `signature` and `cookie` are the names of harmless things as well: `no-check`, `Fetch`, `2021-10-01`. */
const random = /^(?=.*\d)(?=.*[A-Za-z])\S{16,}$/;

/** Is a fixed value a secret, by its form or by what it is called? A placeholder (`{page}`) is none. */
export function isSecretValue(name: string, value: string): boolean {
  if (value === "" || /\{[^}]*\}/.test(value)) return false;
  const words = value.split(/[\s=;]+/);
  return (
    calledSecret.test(name) || words.some(isToken) || (isSecretName(name) && words.some((word) => random.test(word)))
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
