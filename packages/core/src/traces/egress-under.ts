/** The door for work whose requests belong under one span. */
import type { Egress } from "../ports/egress.ts";
import type { Span } from "../ports/traces.ts";

export function egressUnder(egress: Egress, span: Span | undefined): Egress {
  if (span === undefined) return egress;
  return {
    request: (request) => egress.request({ ...request, span }),
    upgrade: (request) => egress.upgrade(request),
    checkUrl: (url) => egress.checkUrl(url),
    connect: (target) => egress.connect(target),
    connectHttp2: (target) => egress.connectHttp2(target),
    checkTarget: (target) => egress.checkTarget(target),
    close: () => egress.close(),
  };
}
