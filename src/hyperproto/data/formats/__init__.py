"""File formats shared by several data sets: tables, .npz arrays, images, tagged text and relations."""
