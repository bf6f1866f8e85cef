/**
 * Secrets that stand in a document as they are: what was stored before it was known for one, addresses that open
 * something to whoever knows them, tokens in texts and arguments. Those who keep the document are told of them.
 */
import { isHook, isUnknown, secretInSegment } from "../import/curl/secrets.ts";
import { isJsonObject, type JsonValue } from "../json.ts";
import { hasSecretInQuery, isOpeningParameter, isSecretValue } from "../secrets/secret-shape.ts";

export interface Warning {
  /** Of the document: `webhooks[0].url`. */
  readonly path: string;
  readonly message: string;
}

const message =
  "This looks like a secret and stands here as it is: whoever has the document has it. Where the field takes none, store it with PUT /v1/credentials/{name} and refer to that; else keep the document where secrets are kept.";

/** @param path of the item: `webhooks[0]` */
export function plainSecretsIn(path: string, item: JsonValue): readonly Warning[] {
  const found: Warning[] = [];
  const visit = (value: JsonValue, at: readonly string[], name: string): void => {
    if (typeof value === "string") {
      if (isPlainSecret(name, value)) found.push({ path: at.join("."), message });
    } else if (Array.isArray(value)) {
      for (const [index, each] of value.entries()) visit(each, [...at, String(index)], "");
    } else if (isJsonObject(value)) {
      for (const [key, each] of Object.entries(value)) if (!namesOnly.has(key)) visit(each, [...at, key], key);
    }
  };
  visit(item, [path], "");
  return found;
}

/** Fields that hold names, of credentials and of arguments. */
const namesOnly: ReadonlySet<string> = new Set([
  "credential",
  "not_secret",
  "properties",
  "required_credentials",
  "source",
]);

/** No address is longer, and whatever is looks like one by chance. */
const longestAddress = 8_192;

function isPlainSecret(name: string, text: string): boolean {
  if (isUnknown(text)) return false;
  if (isSecretValue(name, text)) return true;
  if (text.length > longestAddress || !/^(?:[a-z][a-z\d+.-]*:\/)?\/\S+$/i.test(text)) return false;
  return hasSecretInQuery(text.split("#", 1)[0] ?? "", isOpening) || opensSomething(text);
}

const isOpening = (name: string, value: string): boolean => !isUnknown(value) && isOpeningParameter(name, value);

/** Has an address a password, a token in the place of a user, or a part that is long and says nothing? */
function opensSomething(text: string): boolean {
  const url = URL.parse(text);
  if (url === null) return false;
  if (url.password !== "" || isSecretValue("token", url.username)) return true;
  let isOfHook = url.hostname.split(".").some(isHook);
  let before = "";
  for (const segment of url.pathname.split("/")) {
    if (secretInSegment(segment, { before, isOfHook, isAuthorized: false }) !== undefined) return true;
    isOfHook ||= isHook(segment);
    before = segment;
  }
  return false;
}
