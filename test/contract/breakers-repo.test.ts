import { twoInstancesOfFile, twoInstancesOfServer } from "../support/two-instances.ts";
import { describeBreakerRepo } from "./breakers-repo.ts";

describeBreakerRepo("file", twoInstancesOfFile);
describeBreakerRepo("server", twoInstancesOfServer);
