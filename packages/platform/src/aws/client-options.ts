/**
 * How every client of AWS is made: one place for time limits, retries and connections. Region, endpoint
 * and credentials are found by the SDK itself (environment, configuration files, roles) unless given.
 */
export interface AwsClientOptions {
  readonly region?: string;
  readonly endpoint?: string;
  readonly credentials?: {
    readonly accessKeyId: string;
    readonly secretAccessKey: string;
    readonly sessionToken?: string;
  };
}

/** A service in the same region is reached in milliseconds; one that is not will not be in ten seconds. */
const connectMs = 2_000;
const answerMs = 15_000;
/** Of a body that is being read; its reader may be slow. */
const silenceMs = 60_000;
/** Further ones wait for a free connection. */
const connections = 64;
/** The first try and three more, the SDK's waits in between. */
const attempts = 4;

interface AgentSettings {
  readonly keepAlive: boolean;
  readonly maxSockets: number;
}

export interface AwsClientSettings extends AwsClientOptions {
  readonly maxAttempts: number;
  readonly requestHandler: {
    readonly connectionTimeout: number;
    readonly requestTimeout: number;
    readonly throwOnRequestTimeout: true;
    readonly socketTimeout: number;
    readonly httpAgent: AgentSettings;
    readonly httpsAgent: AgentSettings;
  };
}

/** @param more `answerMs` where an answer may take longer to begin, `attempts` where a request may not be sent again */
export function clientSettings(
  given: AwsClientOptions,
  more: { readonly answerMs?: number; readonly attempts?: number } = {},
): AwsClientSettings {
  const maxAttempts = more.attempts ?? attempts;
  // The other side may have closed a connection that rested, and a frozen process does not hear of it: whoever sends
  // only once would find out when it is too late to tell a lost request from a lost answer.
  const agent = { keepAlive: maxAttempts > 1, maxSockets: connections };
  return {
    ...given,
    maxAttempts,
    requestHandler: {
      connectionTimeout: connectMs,
      requestTimeout: more.answerMs ?? answerMs,
      throwOnRequestTimeout: true,
      socketTimeout: Math.max(silenceMs, more.answerMs ?? 0),
      httpAgent: agent,
      httpsAgent: agent,
    },
  };
}

/** The region that the name of an AWS endpoint says (`sqs.eu-west-1.amazonaws.com`), which beats the default one. */
export function regionOfUrl(url: string): { readonly region?: string } {
  const host = URL.canParse(url) ? new URL(url).hostname : "";
  const [, region] = /(?:^|\.)([a-z]{2}(?:-[a-z]+)+-\d)\.amazonaws\.com(?:\.cn)?$/.exec(host) ?? [];
  return region === undefined ? {} : { region };
}
