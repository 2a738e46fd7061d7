"""Our own processes: started so that they import no foreign code, reached through pipes, ended with us."""
