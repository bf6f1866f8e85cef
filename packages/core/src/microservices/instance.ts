/** Where a microservice can be reached: one of the addresses that its calls are spread over (SVC-3). */
export interface Instance {
  /** A name or an address literal, IPv6 without brackets. */
  readonly host: string;
  readonly port: number;
  /** Share of the calls, relative to the others; above 0. */
  readonly weight: number;
}

/** `host:port`, as it stands in a URL. */
export function authorityOf({ host, port }: Pick<Instance, "host" | "port">): string {
  return `${host.includes(":") ? `[${host}]` : host}:${port}`;
}
